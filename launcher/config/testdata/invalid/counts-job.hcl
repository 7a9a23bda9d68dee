job "counts" {
  command = ["x"]
  hosts "ssh" {
    names = ["a[1-100]"]
  }
  ranks {
    per_host = 4
    devices  = [0, 1]         # want: Ranks and devices do not match
    equal    = true
  }
}
