"""The playground: a page on which a person meets a policy, and the server behind it. docs/play.md has the format."""
