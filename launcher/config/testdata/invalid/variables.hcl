# var: given=12x
# var: flag=maybe
# var: list={a = 1}
# var: list2=[1,
# var: fine=[3, "x"]
# var: evil=1e999999999
variable "given" { default = 3 }          # want: Wrong type of -var
variable "flag" { default = true }        # want: Wrong type of -var
variable "list" { default = [1] }         # want: Wrong type of -var
variable "list2" { default = [1] }        # want: Wrong type of -var
variable "fine" { default = [] }
variable "evil" { default = 1 }           # want: Wrong type of -var
variable "none" {}                        # want: Variable without a value
variable "none" { default = 1 }           # want: Repeated variable
variable "a b" { default = 1 }            # want: Invalid variable name
variable "other" { default = var.given }  # want: Not known here
variable "typo" { defualt = 1 }           # want: Unsupported argument | Variable without a value
variable "described" {
  default     = 1
  description = 3                         # want: Wrong type
}
job "variables" {
  command = ["x", var.none, var.given, var.fien, var["nope"]] # want: Unknown variable | Unknown variable
  setup   = "${var.described} ${var.typo} ${typo}"            # want: Unknown name
  hosts "local" {}
}
