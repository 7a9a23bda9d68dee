package class

import (
	"fmt"
	"strconv"
	"strings"
)

// XidVerdict is what a run makes of an Xid.
type XidVerdict string

// What a run makes of an Xid.
const (
	XidIgnore  XidVerdict = "ignore"  // a notice
	XidEffect  XidVerdict = "effect"  // comes of another fault, or of a kill
	XidProgram XidVerdict = "program" // the program's own fault
	XidRestart XidVerdict = "restart" // the same host can go on
	XidStop    XidVerdict = "stop"    // not on this host
)

// Xid is a number of NVIDIA's driver.
type Xid struct {
	Meaning string
	Class   string
	Verdict XidVerdict
}

type xidRow struct {
	numbers []int
	Xid
}

// FindXid is what is known of the number; of others NVIDIA advises to start again and to
// watch the GPU.
func FindXid(number int) Xid {
	if x, ok := xids[number]; ok {
		return x
	}
	return Xid{fmt.Sprintf("Xid %d, which is in no table", number), GPUXid, XidRestart}
}

// JudgeXid is what an Xid means by the table and by the text that the driver has put beside the
// number. By is the Xid that caused it, as the driver says; 0 where it says nothing.
func JudgeXid(number int, text string) (x Xid, by int) {
	x, by = FindXid(number), causeIn(text)
	if by != 0 {
		x = FindXid(by)
	}
	switch {
	case number >= 144 && number <= 150 && strings.Contains(text, "Nonfatal"):
		x.Verdict = XidIgnore
	case number == 154 && strings.HasSuffix(strings.TrimSpace(text), "(None)"):
		x.Verdict = XidIgnore
	}
	return x, by
}

func causeIn(text string) int {
	_, behind, is := strings.Cut(text, "caused by previous Xid ")
	if !is {
		return 0
	}
	digits := behind[:len(behind)-len(strings.TrimLeft(behind, "0123456789"))]
	number, _ := strconv.Atoi(digits[:min(len(digits), 5)])
	return number
}

var xids = func() map[int]Xid {
	all := map[int]Xid{}
	for _, row := range xidTable {
		for _, n := range row.numbers {
			all[n] = row.Xid
		}
	}
	return all
}()

func upTo(first, last int) []int {
	var numbers []int
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

func join(lists ...[]int) []int {
	var all []int
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// xidTable has the drivers' numbers to 590. Opinions differ on 63, 68 and 92, which some
// operators take a machine out of service for: a job file can say so.
var xidTable = []xidRow{
	{[]int{8}, Xid{"the GPU stopped processing", GPUXid, XidRestart}},
	{[]int{11, 25, 32, 80}, Xid{"corrupted commands to the GPU", GPUXid, XidRestart}},
	{[]int{13}, Xid{"a kernel of the program used an illegal address or instruction", GPUAppFault, XidProgram}},
	{[]int{31}, Xid{"a kernel of the program used an address without memory", GPUAppFault, XidProgram}},
	{[]int{37, 38, 44}, Xid{"a report of the driver", GPUXid, XidIgnore}},
	{join(upTo(39, 41), upTo(70, 72), upTo(75, 77), []int{85}, upTo(126, 135)), Xid{"a copy engine failed", GPUXid, XidRestart}},
	{[]int{43}, Xid{"a channel was stopped after a fault of the program", GPUAppFault, XidEffect}},
	{[]int{45}, Xid{"channels were cleaned up after another fault, or after a kill", GPUXid, XidEffect}},
	{[]int{46}, Xid{"the GPU stopped processing and needs a reset", GPUXid, XidStop}},
	{[]int{48}, Xid{"a double-bit error of GPU memory", GPUECC, XidStop}},
	{[]int{54}, Xid{"auxiliary power is not connected", GPUXid, XidStop}},
	{join([]int{60, 68}, upTo(82, 84), []int{86, 88, 89}, upTo(96, 105), []int{139}), Xid{"a video, JPEG or optical-flow engine failed", GPUXid, XidRestart}},
	{[]int{62, 169}, Xid{"an internal micro-controller halted", GPUXid, XidStop}},
	{[]int{63}, Xid{"a row of GPU memory is going to be remapped", GPUECC, XidIgnore}},
	{[]int{64}, Xid{"a row of GPU memory could not be remapped", GPUECC, XidStop}},
	{[]int{66, 67}, Xid{"an illegal access by the driver", GPUXid, XidIgnore}},
	{[]int{69}, Xid{"an engine got commands of another class", GPUXid, XidRestart}},
	{[]int{74}, Xid{"an NVLink failed", GPUNVLink, XidStop}},
	{[]int{79}, Xid{"the GPU has fallen off the bus", GPULost, XidStop}},
	{[]int{92}, Xid{"many single-bit errors of GPU memory", GPUECC, XidIgnore}},
	{join([]int{78, 93}, []int{106, 107, 121, 137, 141, 152, 153, 157, 160, 161, 171, 172}), Xid{"a notice of the driver", GPUXid, XidIgnore}},
	{[]int{94}, Xid{"an error of GPU memory that hit this program only", GPUECC, XidRestart}},
	{[]int{95}, Xid{"an error of GPU memory that may have hit every program", GPUECC, XidStop}},
	{[]int{109, 110}, Xid{"a context switch did not end in time", GPUXid, XidStop}},
	{[]int{119, 120}, Xid{"the GPU's firmware (GSP) does not answer", GPUGSP, XidStop}},
	{[]int{136}, Xid{"a link could not be trained", GPUNVLink, XidStop}},
	{[]int{140}, Xid{"an error of GPU memory was not recovered", GPUECC, XidStop}},
	{[]int{143}, Xid{"the GPU could not be initialised", GPUXid, XidStop}},
	{upTo(144, 150), Xid{"an NVLink unit failed", GPUNVLink, XidStop}},
	{[]int{151}, Xid{"keys could not be rotated: the virtual machine must be started anew", GPUXid, XidStop}},
	{[]int{154}, Xid{"the driver asks for a recovery of the GPU", GPUXid, XidStop}},
	{[]int{155, 158}, Xid{"an NVLink error of the driver's own, or its time-out", GPUNVLink, XidStop}},
	{[]int{156}, Xid{"a unit of the GPU was taken out of use", GPUXid, XidStop}},
	{[]int{159}, Xid{"an error between CPU and GPU (CHI)", GPUXid, XidRestart}},
}
