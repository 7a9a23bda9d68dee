package evidence

import "testing"

func TestOutputThatConcernsADevice(t *testing.T) {
	for output, want := range map[string]bool{
		"RuntimeError: CUDA error: an illegal memory access was encountered": true,
		"torch.OutOfMemoryError: CUDA out of memory.":                        true,
		"OOM when allocating tensor with shape[8,128]":                       true,
		"NVML_ERROR_GPU_IS_LOST":                                             true,
		"  File \"/x/torch/cuda/__init__.py\"\nValueError: no such layer":    false,
		"": false,
	} {
		if got := ConcernsDevice([]byte(output)); got != want {
			t.Errorf("%q: %v", output, got)
		}
	}
}
