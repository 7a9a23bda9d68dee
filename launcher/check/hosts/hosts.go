// Package hosts are the rules on hosts apart from their GPUs: limits and space, versions, InfiniBand, interfaces and
// whether hosts reach each other. For thresholds of public checkers see package gpus; K is NCCL's guide.
package hosts

import (
	"github.com/muster-dev/muster/launcher/check/codes"
	"github.com/muster-dev/muster/launcher/check/rule"
)

// Thresholds.
const (
	minMemlock    = 64 << 20 // bytes, below which InfiniBand's queues cannot be made
	minFiles      = 4096     // each rank opens files and connections by the hundred
	filesPerPeer  = 2        // connections, at the least, from a rank to each other
	filesBase     = 1024
	minPIDs       = 512      // a rank; 4096 for the usual 8
	usualRanks    = 8        // of a host, where there is no plan
	minMemory     = 2 << 30  // bytes a rank
	minShared     = 1 << 30  // bytes of /dev/shm, which NCCL and data loaders share memory by
	sharedPerRank = 10 << 20 // bytes that NCCL takes of it for one channel to one peer
	minDisk       = 1 << 30  // bytes
	leastDisk     = 128 << 20
	fullDisk      = 95       // per cent (I fails it, M from 85), ...
	roomyDisk     = 20 << 30 // bytes ... but this much is enough for logs
	leastInodes   = 1000     // files
	clocksApart   = 1.0      // seconds, beyond which logs cannot be compared
	clocksFar     = 30.0     // beyond which signed requests to object stores and the like are refused
)

// Rules are all of them.
var Rules = []rule.Rule{
	rule.OfHost(codes.Memlock, rule.Facts, memlock),
	rule.OfHost(codes.NoFile, rule.Facts, noFile),
	rule.OfHost(codes.CgroupMemory, rule.Plan, cgroupMemory),
	rule.OfHost(codes.CgroupPIDs, rule.Facts, cgroupPIDs),
	rule.OfHost(codes.SharedMemory, rule.Facts, sharedMemory),
	rule.OfHost(codes.DiskFull, rule.Facts, diskFull),
	rule.OfAll(codes.ClockOffset, rule.Facts, clocks),

	rule.OfHost(codes.HCADown, rule.Facts, portsDown),
	rule.OfHost(codes.HCASlow, rule.Facts, portsSlow),
	rule.OfHost(codes.VerbsMissing, rule.Facts, verbs),
	rule.OfHost(codes.PeerMemory, rule.Facts, peerMemory),
	rule.OfHost(codes.HCAMissing, rule.Plan, fewerAdapters),
	rule.OfHost(codes.HCAMissing, rule.Plan, namedAdapter),
	rule.OfHost("", rule.Plan, namedInterfaces),

	rule.OfAll(codes.DriverDiffers, rule.Plan, drivers),
	rule.OfAll(codes.CUDADiffers, rule.Plan, cudas),
	rule.OfAll(codes.TorchDiffers, rule.Plan, torches),
	rule.OfAll(codes.NCCLDiffers, rule.Plan, nccls),
	rule.OfAll(codes.PythonDiffers, rule.Plan, pythons),
	rule.OfAll(codes.TorchMissing, rule.Plan, torchMissing),
	rule.OfHost(codes.CommandMissing, rule.Plan, commandMissing),
	rule.OfHost(codes.ModuleDiffers, rule.Facts, moduleDiffers),
	rule.OfHost(codes.NCCLSharedGPU, rule.Plan, sharedGPUs),

	rule.OfAll(codes.Unreachable, rule.Plan, reach),
	rule.OfAll(codes.SameSubnet, rule.Plan, sameSubnets),
	rule.OfAll(codes.MTUDiffers, rule.Plan, mtus),
	rule.OfAll("", rule.Plan, visits),
	rule.OfHost(codes.NameLoopback, rule.Plan, ownName),
}
