job "env" {
  command = ["x"]
  env = {
    RANK                  = 1     # want: Variable belongs to muster
    MASTER_PORT           = rank.globl # want: Variable belongs to muster | Unknown name
    TORCHELASTIC_RUN_ID   = "x"   # want: Variable belongs to muster
    MUSTER_X              = "x"   # want: Variable belongs to muster
    CUDA_VISIBLE_DEVICES  = "0"   # want: Variable belongs to muster
    CUDA_MPS_LOG_DIRECTORY = "/x" # want: Variable belongs to muster
    LIST                  = [1]   # want: Wrong type
    OBJECT                = { a = 1 } # want: Wrong type
    NUL                   = "\u0000" # want: NUL in a string
    "A-B"                 = 1     # want: Invalid variable name
    "1A"                  = 1     # want: Invalid variable name
    ""                    = 1     # want: Invalid variable name
    TWICE                 = 1
    TWICE                 = 2     # want: Repeated variable
    (var.none)            = 1     # want: Unknown variable
    SHELL                 = "${FOO}" # want: Unknown name
    HOSTNAME2             = host.nam # want: Unknown name
    ok                    = rank.global
    DIV                   = 1 / rank.global # want: Number out of range
    NUMBERS               = "x" * 2 # want: Invalid operand
  }
  hosts "ssh" {
    names = ["a"]
    host "a" {
      env = {
        WORLD_SIZE = 1            # want: Variable belongs to muster
        OTHER      = [host.index] # want: Wrong type
      }
    }
  }
}
