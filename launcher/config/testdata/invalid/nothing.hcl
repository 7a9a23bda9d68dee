 # want: Missing block
variable "x" { default = 1 }
