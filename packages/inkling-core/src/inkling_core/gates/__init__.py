"""Gates: checks of a running server of ours, from outside, over HTTP.

Not unit tests: `inkling gates url=...` asks a real server and says whether to trust it. `run` is
the command, `checks` the gates of the core tier, `long_checks` those of the long one (with
`long_prefill` and `streams` for what goes on beside a long prompt), `client` the wire, `reference`
the dense decoder that answers are compared with.
"""
