job "syntax" {
  lease = 3                               # want: Wrong type
  command = ["bash", "-c", "echo ${X:-y}"] # want: Extra characters after interpolation expression
  stop {
    signal = "SIGKILL"
  }
}
