"""The linter's rules, a file for each subject: a rule takes a :class:`problem.Problem` and yields findings."""
