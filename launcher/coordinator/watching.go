package coordinator

import "github.com/muster-dev/muster/launcher/orders"

// seen takes in who holds the devices of a host.
func (b *brain) seen(host int, s *orders.Sight) {
	if s.Asked != 0 {
		b.emptySeen(host, s)
		return
	}
}
