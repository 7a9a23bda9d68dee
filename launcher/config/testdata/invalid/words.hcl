job "words" {
  command = [
    "x",
    null,                     # want: Wrong type
    ["a", "b"],               # want: Wrong type
    { a = 1 },                # want: Wrong type
    "a\u0000b",               # want: NUL in a string
    HOME,                     # want: Unknown name
    "${HOME}/x",              # want: Unknown name
    "$${HOME}",
    rank.global,              # want: Not known here
    host.name,                # want: Not known here
    env("HOME"),              # want: Unknown function
    uper("x"),                # want: Unknown function
    "${[1]}-x",               # want: Invalid template interpolation value
    "a" + 1,                  # want: Invalid operand
    1e99999999,               # want: Number out of range
    length(3),                # want: Error in function call
  ]
  setup = <<EOT
    echo ${HOME}              
    echo $${HOME} $(date)
  EOT
  # want-3: Unknown name
  workdir = "$HOME/x"         # warn: Variable in a path
  hosts "loca" {}             # want: Unknown kind of hosts
  logs { show = [true] }      # want: Wrong type
}
