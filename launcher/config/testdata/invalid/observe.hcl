# Wrong values of an observe block, all at once.
job "observe" {
  command = ["python", "train.py"]
  hosts "local" {}
  observe {
    torch    = "yes"                    # want: Wrong type
    snapshot = 3                        # want: Wrong type
    memory   = true                     # want: Unsupported argument
  }
}
