# Other kinds of values than a check block takes, and one without effect.
job "check" {
  command = ["x"]
  hosts "local" {}
  check {
    ignore      = "throttled"     # want: Wrong type
    severity    = ["throttled"]   # want: Wrong type
    wrong_gpu   = "stop"          # warn: Without effect
    after_start = false
  }
}
