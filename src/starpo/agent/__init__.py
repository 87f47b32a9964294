"""The harness around a policy: prompt, response parser and token ledger."""
