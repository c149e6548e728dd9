"""One file per boundary, each written as an attacker would try it (docs/security.md has the table)."""
