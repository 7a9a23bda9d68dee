package plan

import (
	"net/netip"
	"strconv"

	"github.com/muster-dev/muster/launcher/config"
)

// ompi marks the values by which JAX takes itself for started by mpirun.
const ompi = "jax.distributed.initialize() reads it"

// jax is what jax.distributed.initialize() reads when it is called without arguments
// (jax/_src/distributed.py and jax/_src/clusters of JAX 0.10). The coordinator's address and
// the local devices have variables of JAX's own. The number of processes and the rank have
// none: they come from the launcher that JAX finds, the first of which is Open MPI's, known
// by OMPI_MCA_orte_hnp_uri alone. That one's value, the address of mpirun, JAX does not look
// at where the coordinator's is given.
func (p *Plan) jax(r Rank, m Meeting) []Var {
	if p.Config.Program != config.ProgramJAX {
		return nil
	}
	local, at := p.localRank(r), ""
	if addr, err := netip.ParseAddr(m.MasterAddr); err == nil {
		at = netip.AddrPortFrom(addr, uint16(m.MasterPort)).String()
	}
	vars := []Var{
		{Name: "JAX_COORDINATOR_ADDRESS", Value: at, Source: "MASTER_ADDR and MASTER_PORT, where rank 0 starts JAX's coordinator"},
		{Name: "OMPI_MCA_orte_hnp_uri", Value: "muster", Source: "jax.distributed.initialize() looks at the next three where it is set"},
		{Name: "OMPI_COMM_WORLD_SIZE", Value: strconv.Itoa(p.WorldSize), Source: ompi},
		{Name: "OMPI_COMM_WORLD_RANK", Value: strconv.Itoa(r.Rank), Source: ompi},
		{Name: "OMPI_COMM_WORLD_LOCAL_RANK", Value: local.Value, Source: ompi},
	}
	if r.Device != nil {
		vars = append(vars, Var{Name: "JAX_LOCAL_DEVICE_IDS", Value: local.Value, Source: "the rank's device among those that it sees"})
	}
	return vars
}
