job "forward" {
  command = ["x"]
  hosts "local" {}
  forward = [
    "WANDB_*",
    "HOME",
    "*",                # want: Invalid pattern
    "",                 # want: Invalid pattern
    "A=b",              # want: Invalid pattern
    "A-B",              # want: Invalid pattern
    "[AB]*",            # want: Invalid pattern
    "1*",               # want: Invalid pattern
    "RANK",             # want: Variable belongs to muster
    "MUSTER_*",         # want: Variable belongs to muster
    "TORCHELASTIC_X",   # want: Variable belongs to muster
    1,                  # want: Wrong type
    null,               # want: Wrong type
    rank.local,         # want: Not known here
  ]
}
