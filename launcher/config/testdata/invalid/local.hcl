job "local" {
  command = ["x"]
  hosts "local" {
    names = ["a"]             # want: Unsupported argument
    host "a" {                # want: Unsupported block type
    }
  }
}
