package gpu

// IsTrue reports whether a value is known and true.
func IsTrue(b *bool) bool { return b != nil && *b }

// IsFalse reports whether a value is known and false.
func IsFalse(b *bool) bool { return b != nil && !*b }

// OrZero is a value, or 0 if it is unknown.
func OrZero[T int | uint64](n *T) T {
	if n == nil {
		return 0
	}
	return *n
}
