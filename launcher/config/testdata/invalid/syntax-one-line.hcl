job "syntax" {
  ranks { per_host = 4 backend = "gloo" } # want: Invalid single-argument block definition
  lease = 3                               # want: Wrong type
  comand = ["x"]                          # want: Unsupported argument
}
