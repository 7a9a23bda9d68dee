job "one" "two" {             # want: Unexpected label
  command = ["x"]
}                             # want-2: Missing block
job "two" {                   # want: Repeated block
  command = 3
}
