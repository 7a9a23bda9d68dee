job "syntax" {
  comand = ["x"]                          # want: Unsupported argument
  setup = <<EOT
    curl -w '%{http_code}'
  EOT
  # want-2: Invalid template control keyword
}
