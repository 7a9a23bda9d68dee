package remote

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// upload sends a program that the host lacks; request is "FILE KIND".
func (s *start) upload(ctx context.Context, request string) error {
	file, kind, _ := strings.Cut(request, " ")
	binary, ok := s.script.Binaries[file]
	if !ok {
		return &startFailure{kind: KindShell, text: fmt.Sprintf("the host asks for %q, which it was not told of", clip(file))}
	}
	content, size, err := content(binary, kind == "raw")
	if err != nil {
		return &startFailure{kind: KindProgram, text: fmt.Sprintf("read %s: %v", file, err)}
	}
	defer content.Close()
	if _, err := fmt.Fprintf(s.channel.channel, "%d %d\n", size, binary.Size); err != nil {
		return nil // the host's next line, or its end, says why
	}
	s.sending = binary.Size
	program, _, _ := strings.Cut(file, "-"+binary.Hash)
	return s.send(ctx, content, program, size)
}

// send copies the content to the host. A host that stops reading has a reason,
// which its next line says.
func (s *start) send(ctx context.Context, content io.Reader, program string, size int64) error {
	buffer := make([]byte, 256<<10)
	for done := int64(0); done < size; {
		n, err := io.ReadFull(content, buffer[:min(int64(len(buffer)), size-done)])
		if err != nil {
			return &startFailure{kind: KindProgram, text: fmt.Sprintf("read %s: %v", program, err)}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := s.channel.channel.Write(buffer[:n]); err != nil {
			return nil
		}
		s.silence.Reset(s.host.bound)
		done += int64(n)
		if s.host.progress != nil {
			s.host.progress.Upload(s.host.name, program, done, size)
		}
	}
	return nil
}

// content opens a program as the host can take it.
func content(b Binary, raw bool) (io.ReadCloser, int64, error) {
	if !raw {
		return b.Gzip()
	}
	unpacked, err := b.Unpacked()
	return unpacked, b.Size, err
}

// failed explains a line "failed"; text is "WHY TEXT".
func (s *start) failed(text string) error {
	why, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch why {
	case "platform":
		return &startFailure{
			kind: KindPlatform,
			text: fmt.Sprintf("%s is %s; this muster carries %s", s.host.name, rest, strings.Join(s.script.Platforms, ", ")),
		}
	case "noexec":
		return &startFailure{KindNoExec, rest + " is on a file system that runs no programs (mounted noexec)", cacheHint}
	case "write":
		return writeFailure(rest, s.sending)
	}
	return folderFailure(rest)
}

const cacheHint = "let ~/.cache/muster on the host be a link to a folder that will do, or set XDG_CACHE_HOME there"

// figures finds the columns of df: blocks, used, available, percent.
var figures = regexp.MustCompile(`(\d+)\s+(\d+)\s+(-?\d+)\s+\d+%\s*(\S*)`)

// writeFailure explains a file that could not be written whole; text is a line
// of df, a colon, and the words of the tool that failed.
func writeFailure(text string, size int64) error {
	df, words, _ := strings.Cut(text, " : ")
	words = strings.TrimSpace(words)
	free := ""
	if m := figures.FindStringSubmatch(df); m != nil {
		kib, _ := strconv.ParseInt(m[3], 10, 64)
		free = fmt.Sprintf(" (%s free at %s)", kibibytes(kib), m[4])
	}
	if full(words) {
		return &startFailure{KindNoSpace, fmt.Sprintf("no space for a program of %s%s: %s", kibibytes(size>>10), free, words), "make room there; " + cacheHint}
	}
	if words == "" {
		words = "the content did not arrive whole"
	}
	out := folderFailure(words)
	out.text += free
	return out
}

func kibibytes(kib int64) string {
	switch {
	case kib >= 1<<20:
		return fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
	case kib >= 1<<10:
		return fmt.Sprintf("%.1f MiB", float64(kib)/(1<<10))
	}
	return fmt.Sprintf("%d KiB", kib)
}

func full(words string) bool {
	return strings.Contains(words, "No space left") || strings.Contains(words, "quota exceeded")
}

// folderFailure explains a folder that cannot be written.
func folderFailure(words string) *startFailure {
	out := &startFailure{kind: KindPermission, text: "install muster's programs: " + words, hint: cacheHint}
	if full(words) {
		out.kind = KindNoSpace
	}
	return out
}
