# Wrong values of a check block, all at once.
job "check" {
  command = ["x"]
  hosts "local" {}
  check {
    ignore = [
      "pcie_narow",             # want: Unknown code
      "throttled",
      "throttled",              # warn: Repeated code
      4,                        # want: Wrong type
      null,                     # want: Wrong type
    ]
    severity = {
      pcie_narrow  = "error"    # want: Invalid severity
      ecc_history  = 2          # want: Invalid severity
      nothing      = "warn"     # want: Unknown code
      throttled    = "fail"     # warn: Without effect
      shared_memory = "warn"
      shared_memory = "fail"    # want: Repeated code
      clock_offset = null       # want: Invalid severity
    }
    wrong_gpu   = "fail"        # want: Invalid value
    after_start = "no"          # want: Wrong type
    wrong_cpu   = "stop"        # want: Unsupported argument
  }
  check {                       # want: Repeated block
  }
}
