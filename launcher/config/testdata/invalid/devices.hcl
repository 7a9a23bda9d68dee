# Devices that have no good form, each with its place.
variable "list" { default = ["cuda:1", 5, "5"] }
job "devices" {
  command = ["x"]
  hosts "ssh" {
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
    host "a" {
      ranks {
        devices = [
          "",                 # want: Invalid device
          "0-3",              # want: Invalid device
          "0,1",              # want: Invalid device
          "cuda:0",           # want: Invalid device
          "GPU-",             # want: Invalid device
          "GPU-xyz",          # want: Invalid device
          "gpu-8932f937",     # want: Invalid device
          "MIG-3771aff4/1",   # want: Invalid device
          "MIG-1g.10gb",      # want: Invalid device
          "0000:0f:20.0",     # want: Invalid device
          "NVIDIA H100",      # want: Invalid device
          "-1",               # want: Invalid device
          "1024",             # want: Invalid device
          "8932f937-d72c-4106-c12f-20bd9faed9f6", # want: Invalid device
          "all",              # want: Invalid device
          -1,                 # want: Invalid device
          1.5,                # want: Invalid device
          1024,               # want: Invalid device
          null,               # want: Invalid device
          true,               # want: Invalid device
          [0],                # want: Invalid device
          { a = 1 },          # want: Invalid device
          HOME,               # want: Unknown name
          7,
          "07",               # want: Device listed twice
          7.0,                # want: Device listed twice
          "GPU-ab",
          "GPU-AB",           # want: Device listed twice
          "0F:00.0",
          "00000000:0f:00",   # want: Device listed twice
        ]
      }
    }
    host "b" {
      ranks { devices = var.list } # want: Invalid device | Device listed twice
    }
    host "c" {
      ranks { devices = "0-3" }    # want: Invalid devices
    }
    host "d" {
      ranks { devices = "cuda:0" } # want: Invalid devices
    }
    host "e" {
      ranks { devices = "al" }     # want: Invalid devices
    }
    host "f" {
      ranks { devices = 1025 }     # want: Invalid devices
    }
    host "g" {
      ranks { devices = -1 }       # want: Invalid devices
    }
    host "h" {
      ranks { devices = true }     # want: Invalid devices
    }
    host "i" {
      ranks { devices = { a = 0 } }         # want: Invalid devices
    }
    host "j" {
      ranks { devices = range(0, 1024, 0.5) } # want: Error in function call
    }
    host "k" {
      ranks { devices = concat(range(1000), range(1000)) } # want: Too many devices
    }
    host "l" {
      ranks { devices = var.lst }  # want: Unknown variable
    }
  }
}
