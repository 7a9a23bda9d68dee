job "command" {
  command = [
    "",                       # want: Empty command
  ]
  ports = "0-5"               # want: Invalid port range
  lease = "2h"                # want: Time out of range
  hosts "slurm" {}            # want: Unknown kind of hosts
  logs { show = [0, "x"] }    # want: Invalid ranks
}
