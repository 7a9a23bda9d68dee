job "windows" {
  command = ["x"]
  hosts "local" {}
  setup = <<EOT
line one
line two
EOT
}
