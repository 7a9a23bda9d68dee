job "ranges" {
  command = []                # want: Empty command
  lease   = "0.5s"            # want: Time out of range
  ports   = "30000-20000"     # want: Invalid port range
  workdir = "~bob/x"          # want: Invalid path
  hosts "ssh" {
    names = []                # want: No hosts
  }
  ranks {
    per_host = "gpus"         # want: Invalid number of ranks
    backend  = 3              # want: Invalid value
  }
  stop {
    grace  = "-30s"           # want: Time out of range
    signal = "SIGTREM"        # want: Invalid value
  }
  logs { show = "3-1" }       # want: Invalid ranks
}
