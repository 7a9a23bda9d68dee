package cuda

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/launcher/testbed/gpus"
)

func TestVisibleDevices(t *testing.T) {
	l40s, twins, mig := gpus.L40S(), gpus.Twins(), gpus.MIG()
	uuid := func(i int) string { return l40s.GPUs[i].UUID }
	for name, test := range map[string]struct {
		s     *gpus.Scenario
		list  *string
		order string
		want  []int // indices of nvidia-smi
	}{
		"all, where nothing is set":                  {l40s, nil, "", []int{0, 1, 2, 3}},
		"none, where it is empty":                    {l40s, new(""), "", nil},
		"those of the list, in its order":            {l40s, new("2,0"), "", []int{2, 0}},
		"blanks around numbers do not count":         {l40s, new(" 1, 3"), "", []int{1, 3}},
		"-1 cuts the rest off":                       {l40s, new("1,-1,2"), "", []int{1}},
		"one that is not there cuts the rest off":    {l40s, new("0,4,1"), "", []int{0}},
		"a word cuts the rest off":                   {l40s, new("0,x,1"), "", []int{0}},
		"a number that comes twice leaves none":      {l40s, new("0,1,0"), "", nil},
		"a number with letters behind is the number": {l40s, new("1gpu"), "", []int{1}},
		"UUIDs":                                           {l40s, new(uuid(3) + "," + uuid(1)), "", []int{3, 1}},
		"the beginning of a UUID":                         {l40s, new(uuid(2)[:10]), "", []int{2}},
		"a number among UUIDs cuts the rest off":          {l40s, new(uuid(3) + ",1"), "", []int{3}},
		"a UUID among numbers cuts the rest off":          {l40s, new("3," + uuid(1)), "", []int{3}},
		"a UUID that comes twice leaves none":             {l40s, new(uuid(3) + "," + uuid(3)), "", nil},
		"a UUID of another machine cuts the rest off":     {l40s, new("GPU-12345678," + uuid(1)), "", nil},
		"a beginning that two share is nobody's":          {twins, new("GPU-5e2a9c01"), "", nil},
		"whole UUIDs that begin alike":                    {twins, new(twins.GPUs[1].UUID + "," + twins.GPUs[0].UUID), "", []int{1, 0}},
		"the fastest first, where nothing is said":        {gpus.Mixed(), new("0"), "", []int{1}},
		"the fastest first, where it is said":             {gpus.Mixed(), nil, "FASTEST_FIRST", []int{1, 0}},
		"by PCI address":                                  {gpus.Mixed(), new("0"), "PCI_BUS_ID", []int{0}},
		"lost GPUs are not counted":                       {gpus.Lost(), new("1"), "PCI_BUS_ID", []int{2}},
		"a GPU in MIG mode stands for its first instance": {mig, nil, "PCI_BUS_ID", []int{0}},
		"no whole GPU beside a MIG device":                {mig, new("1,0"), "PCI_BUS_ID", []int{0}},
		"a whole GPU of a machine with MIG":               {mig, new("1"), "PCI_BUS_ID", []int{1}},
		"one MIG device, whatever is listed":              {mig, new(mig.GPUs[0].MIG.Instances[1].UUID + "," + mig.GPUs[0].MIG.Instances[0].UUID), "", []int{0}},
		"a MIG device that is not there":                  {mig, new("MIG-0"), "", nil},
		"none without a driver":                           {gpus.NoDriver(), nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, d := range Visible(test.s, test.list, test.order) {
				got = append(got, d.GPU)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("visible: %v, want %v", got, test.want)
			}
		})
	}
}

func TestMIGDeviceHasItsOwnUUIDAndMemory(t *testing.T) {
	s := gpus.MIG()
	second := s.GPUs[0].MIG.Instances[1]
	got := Visible(s, &second.UUID, "")
	if len(got) != 1 || got[0].UUID != second.UUID || got[0].Total != *second.Memory || !got[0].MIG {
		t.Errorf("visible: %+v, want %+v", got, second)
	}
	if got := Visible(s, new("0"), "PCI_BUS_ID"); len(got) != 1 || got[0].UUID != s.GPUs[0].MIG.Instances[0].UUID {
		t.Errorf("index 0 of a GPU in MIG mode: %+v, want its first MIG device", got)
	}
}
