# Ranks and devices that do not match, on some hosts only.
job "counts" {
  command = ["x"]
  hosts "ssh" {
    names = ["a", "b", "c", "d", "e", "f"]
    host "a" {
      ranks { per_host = 3 }  # want: Ranks and devices do not match
    }
    host "b" {
      ranks { devices = [0, 1] } # want: Ranks and devices do not match
    }
    host "c" {
      ranks { devices = 5 }   # want: Ranks and devices do not match
    }
    host "d" {
      ranks {
        per_host = "gpu"
        devices  = []         # want: Ranks and devices do not match
      }
    }
    host "e" {
      ranks {
        per_host = 0          # want: Invalid number of ranks
        devices  = [0]
      }
    }
    host "f" {
      ranks { devices = [9999] } # want: Invalid device
    }
  }
  ranks {
    per_host = 4
    devices  = [0, 1, 2, 3]
    visibility = "rank"
  }
}
