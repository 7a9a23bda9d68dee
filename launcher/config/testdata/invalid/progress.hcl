job "progress" {
  command = ["python", "train.py"]
  hosts "local" {}
  progress "x" {                        # want: Unexpected label
    pattern = "step ([0-9]+"            # want: Invalid pattern
    folder  = 3                         # want: Wrong type
  }
}
