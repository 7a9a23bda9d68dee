// Package rendezvous decides where the hosts of a run meet and when they may begin. It keeps the state of each
// member (joined, prepared, lost), the round that they gather for, and the address and port of the first member
// that all of them can use. It is pure: it has no clock and no network.
package rendezvous

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/rendezvous/link"
)

// Member is a host of the run.
type Member struct {
	Name     string
	Linked   bool   // its link is up, or was dropped and may come back
	Dropped  string // why its link is down; "": it is not
	Prepared bool
	Gone     bool // given up: it was lost or cannot take part
	Finished bool // it has left in good order

	reached  map[string]link.Reach // by host:port
	complete bool                  // every address was tried
}

// Present reports whether commands still reach the member.
func (m *Member) Present() bool { return m.Linked && !m.Gone }

// Address is one of the first member, a candidate for MASTER_ADDR.
type Address struct {
	IP, NIC string
	Passed  string // why it cannot be chosen; "": it can
}

// Rendezvous is the state of all members.
type Rendezvous struct {
	Members   []*Member
	addresses []Address
	chosen    int // of addresses; -1: none yet
	port      int // 0: none yet
	round     int
	awaited   link.Instant // since when members are awaited
}

// New awaits members. Those that do not talk to each other need no address: nil.
func New(names []string, addresses []Address) *Rendezvous {
	r := &Rendezvous{addresses: addresses, chosen: -1}
	for _, name := range names {
		r.Members = append(r.Members, &Member{Name: name, reached: map[string]link.Reach{}})
	}
	return r
}

// Join notes that a member's link is up and reports whether for the first time.
func (r *Rendezvous) Join(member int) (first bool) {
	m := r.Members[member]
	first = !m.Linked
	m.Linked, m.Dropped = true, ""
	return first
}

// AddReached notes which addresses a member reaches; complete is set when it has tried all.
func (r *Rendezvous) AddReached(member int, results []link.Reach, complete bool) {
	m := r.Members[member]
	for _, result := range results {
		m.reached[result.Addr] = result
	}
	m.complete = complete
}

// Reach is what a member said of an address; results carry a port too.
func (r *Rendezvous) Reach(member int, ip string) (link.Reach, bool) {
	for full, reach := range r.Members[member].reached {
		if Host(full) == ip {
			return reach, true
		}
	}
	return link.Reach{}, false
}

// Host is the host of a host:port.
func Host(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return hostPort
	}
	return host
}

// NextRound gathers the members for another attempt, which needs another port.
func (r *Rendezvous) NextRound() { r.round, r.port = r.round+1, 0 }

// SetPort notes the port that the first member holds for a round.
func (r *Rendezvous) SetPort(round, port int) {
	if round == r.round {
		r.port = port
	}
}

// Port is MASTER_PORT of the round; 0: not known yet.
func (r *Rendezvous) Port() int { return r.port }

// Master is MASTER_ADDR; "": not known yet, or nobody needs it.
func (r *Rendezvous) Master() string {
	if r.chosen < 0 {
		return ""
	}
	return r.addresses[r.chosen].IP
}

// Local is a member's own address on its way to the master; "": not known.
func (r *Rendezvous) Local(member int) string {
	reach, _ := r.Reach(member, r.Master())
	return reach.Local
}

// Prepared reports whether every member is prepared or gone.
func (r *Rendezvous) Prepared() bool {
	return !slices.ContainsFunc(r.Members, func(m *Member) bool { return !m.Prepared && !m.Gone })
}

// MayCommit reports whether the address and the port are known, as far as they are needed.
func (r *Rendezvous) MayCommit() bool { return r.addresses == nil || r.chosen >= 0 && r.port != 0 }

// Choose takes the best address that every member has reached. It waits for a better one until some member has
// failed to reach that. The error says that there is none.
func (r *Rendezvous) Choose() error {
	for i, a := range r.addresses {
		if a.Passed != "" {
			continue
		}
		all, failed := r.tried(a)
		if all {
			r.chosen = i
		}
		if all || !failed {
			return nil
		}
	}
	if r.addresses == nil {
		return nil
	}
	return r.noAddress()
}

// tried reports whether all members have reached an address, and whether one cannot.
func (r *Rendezvous) tried(a Address) (all, failed bool) {
	all = true
	for i, m := range r.Members {
		reach, tried := r.Reach(i, a.IP)
		all = all && tried && reach.Error == ""
		failed = failed || tried && reach.Error != "" || !tried && m.complete
	}
	return all, failed
}

func (r *Rendezvous) noAddress() error {
	lines, passed := []string{"no address of it is reached by every host:"}, []string(nil)
	for _, a := range r.addresses {
		if a.Passed != "" {
			passed = append(passed, fmt.Sprintf("  %s was passed over: %s", a.IP, a.Passed))
			continue
		}
		for i, m := range r.Members {
			if reach, _ := r.Reach(i, a.IP); reach.Error != "" {
				lines = append(lines, fmt.Sprintf("  %s (%s) from %s: %s", a.IP, a.NIC, m.Name, reach.Error))
			}
		}
	}
	return errors.New(strings.Join(append(lines, passed...), "\n"))
}

// Rejection is why an address was not chosen, by the member that could not reach it.
type Rejection struct{ Member, Message string }

// Rejected are the addresses that were passed over for the one chosen.
func (r *Rendezvous) Rejected() (all []Rejection) {
	for _, a := range r.addresses {
		if a.Passed != "" {
			all = append(all, Rejection{r.Members[0].Name, fmt.Sprintf("%s was passed over: %s", a.IP, a.Passed)})
		}
	}
	for _, a := range r.addresses[:r.chosen] {
		for i, m := range r.Members {
			if reach, _ := r.Reach(i, a.IP); a.Passed == "" && reach.Error != "" {
				all = append(all, Rejection{m.Name,
					fmt.Sprintf("%s was passed over: %s does not reach it: %s", a.IP, m.Name, reach.Error)})
			}
		}
	}
	return all
}

// Left reports whether every member that has joined has finished or is gone.
func (r *Rendezvous) Left() bool {
	return !slices.ContainsFunc(r.Members, func(m *Member) bool { return m.Present() && !m.Finished })
}

// JoinMargin is how much longer than the lease a member may take to join: it tries addresses that may not answer.
const JoinMargin = 5 * time.Second

// Silence is a member that is overdue: it has not joined, or was not heard for the lease.
type Silence struct {
	Member int
	Last   link.Instant // when it was last heard; 0: it has never joined
}

// Heard is when a member was last heard; ok is false where it never was.
type Heard func(member int) (last link.Instant, ok bool)

// Silent are the members that are overdue.
func (r *Rendezvous) Silent(now link.Instant, lease time.Duration, heard Heard) (all []Silence) {
	if r.awaited == 0 {
		r.awaited = now
	}
	for i, m := range r.Members {
		last, ok := heard(i)
		switch {
		case m.Gone || m.Finished:
		case !m.Linked && now.Sub(r.awaited) > lease+JoinMargin:
			all = append(all, Silence{Member: i})
		case m.Linked && ok && now.Sub(last) >= lease:
			all = append(all, Silence{i, last})
		}
	}
	return all
}
