job "syntax" {
  lease   = 3                             # want: Wrong type
  workdir = "~/x # want: Invalid multi-line string
  hosts "local" {}
}
