package smi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func health(l *log, g *gpus.GPU) {
	l.in("ecc_mode", func() {
		l.now("current_ecc", enabled(g.ECC.Enabled))
		l.now("pending_ecc", enabled(g.ECC.Enabled))
	})
	l.in("ecc_errors", func() {
		l.in("volatile", func() { errors(l, g, g.ECC.Volatile) })
		l.in("aggregate", func() { errors(l, g, g.ECC.Aggregate) })
	})
	l.in("retired_pages", func() {
		l.in("multiple_single_bit_retirement", func() {
			l.now("retired_count", number(g.Retired.SingleBit))
			l.now("retired_pagelist", "N/A")
		})
		l.in("double_bit_retirement", func() {
			l.now("retired_count", number(g.Retired.DoubleBit))
			l.now("retired_pagelist", "N/A")
		})
		l.now("pending_blacklist", yes(g.Retired.Pending))
		l.now("pending_retirement", yes(g.Retired.Pending))
	})
	if rows := g.Expected().Remapped; rows.Correctable == nil {
		l.now("remapped_rows", "N/A")
	} else {
		l.in("remapped_rows", func() {
			l.now("remapped_row_corr", number(rows.Correctable))
			l.now("remapped_row_unc", number(rows.Uncorrectable))
			l.now("remapped_row_pending", yes(rows.Pending))
			l.now("remapped_row_failure", yes(rows.Failed))
		})
	}
}

// errors are the counters of Ampere and newer, in SRAM and DRAM, or of Volta, by bits. A
// product without ECC has those of Ampere, and nothing in them.
func errors(l *log, g *gpus.GPU, sum *uint64) {
	if sram := g.ECC.SRAMVolatile; sum == nil || sram != nil {
		counted := func(n uint64) string {
			if sum == nil {
				return "N/A"
			}
			return strconv.FormatUint(n, 10)
		}
		inSRAM, inDRAM := uint64(0), uint64(0)
		if sum != nil {
			inSRAM, inDRAM = *sram, *sum-*sram
		}
		l.now("sram_correctable", counted(0))
		l.now("sram_uncorrectable_parity", counted(0))
		l.now("sram_uncorrectable_secded", counted(inSRAM))
		l.now("dram_correctable", counted(0))
		l.now("dram_uncorrectable", counted(inDRAM))
		return
	}
	for _, bits := range []struct {
		name  string
		count uint64
	}{{"single_bit", 0}, {"double_bit", *sum}} {
		l.in(bits.name, func() {
			l.now("device_memory", strconv.FormatUint(bits.count, 10))
			for _, where := range []string{"register_file", "l1_cache", "l2_cache", "texture_shm", "cbu"} {
				l.now(where, "0")
			}
			l.now("total", strconv.FormatUint(bits.count, 10))
		})
	}
}

func enabled(is *bool) string { return either(is, "Enabled", "Disabled") }
func yes(is *bool) string     { return either(is, "Yes", "No") }

func either(is *bool, yes, no string) string {
	switch {
	case is == nil:
		return "N/A"
	case *is:
		return yes
	default:
		return no
	}
}

func number(n *int) string {
	if n == nil {
		return "N/A"
	}
	return strconv.Itoa(*n)
}

func width(n *int) string {
	if n == nil {
		return "N/A"
	}
	return fmt.Sprintf("%dx", *n)
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// computeMode is "Exclusive_Process" for exclusive_process.
func computeMode(mode *string) string { return title(mode, "_") }

// recoveries are the words for actions where they are not just capitals and blanks.
var recoveries = map[string]string{"gpu_reset": "Reset", "node_reboot": "Reboot", "drain_p2p": "Drain P2P", "drain_and_reset": "Drain and Reset"}

func recovery(action *string) string {
	if action != nil && recoveries[*action] != "" {
		return recoveries[*action]
	}
	return title(action, " ")
}

func title(text *string, between string) string {
	if text == nil {
		return "N/A"
	}
	words := strings.Split(*text, "_")
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, between)
}
