# var: token=hf_secret
variable "token" {
  sensitive = true
}
variable "given" {
  default   = 3
  sensitive = "yes"                     # want: Wrong type
}
variable "leaked" {                     # warn: Secret in the job file
  default   = "secret"
  sensitive = true
}
variable "number" {
  default   = 3                         # want: Wrong type of -var
  sensitive = true                      # warn-2: Secret in the job file
}
# var: number=hf_secret
variable "broken" {                     # want: Invalid default
  default   = hf_secret
  sensitive = true
}
job "sensitive" {
  command = ["x", var.token, "--key=${var.leaked}"] # want: Sensitive value | Sensitive value
  workdir = var.token                   # want: Sensitive value
  setup   = "export T=${var.token}"     # want: Sensitive value
  lease   = "${var.token}s"             # want: Sensitive value
  python  = var.token                   # want: Sensitive value
  ports   = var.token                   # want: Sensitive value
  hosts "ssh" {
    names = ["a", var.token, join("", [upper(var.token)])] # want: Sensitive value | Sensitive value
    host "a" {
      user = var.token                  # want: Sensitive value
      env  = merge({ A = 1 }, { (var.token) = 2 }) # want: Sensitive value
    }
  }
  ranks {
    per_host = var.token == "x" ? 1 : 2 # want: Sensitive value
    groups   = { (var.token) = 2 }      # want: Sensitive value
  }
  env = {
    OK          = var.token
    (var.token) = 1                     # want: Sensitive value
    LIST        = [var.token]           # want: Wrong type
    NUMBER      = tonumber(var.token)   # want: Invalid function argument
    SUM         = var.token + 1         # want: Invalid operand
    MISSING     = { a = 1 }[var.token]  # want: Invalid index
    USED        = "${var.given}${var.number}${var.broken}"
  }
  forward = [var.token]                 # want: Sensitive value
}
