job "one" {
  command = ["true"]
  hosts "local" {}
}
