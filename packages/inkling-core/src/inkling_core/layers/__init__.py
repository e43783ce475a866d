"""Modules of the decoder: weights under their published names, ops through a back end."""
