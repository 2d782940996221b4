package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A refused connection and one that is dropped are the same here: nobody was reached.
const patience = 3 * time.Second

// How long a session waits for the other one.
const together = time.Minute

// target is one thing to reach: an address, or a request to the router.
type target struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Method  string `json:"method"`
	URL     string `json:"url"`
}

// probe asks for every target and tells what came: reached, refused, or the status of a request. In a target ROUTER and DRIVER, OWN and SELF, OTHER
// and PEER stand for the router's URL and its pod's address, for the session's own id and address, and for those of a session in another pod.
func probe() {
	var targets []target
	check(json.Unmarshal([]byte(os.Getenv("PROBE_TARGETS")), &targets))
	if os.Getenv("ROLLOUT_RESULT_FILE") == "" {
		check(json.NewEncoder(os.Stdout).Encode(ask(targets, strings.NewReplacer())))
		return
	}
	listener, err := net.Listen("tcp", ":9999")
	check(err)
	defer listener.Close()
	say(prompt())
	router, own, _ := strings.Cut(os.Getenv("ROLLOUT_BASE_URL"), "/sessions/")
	mark(own+".here", address())
	other, peer := met(own, ".here")
	_, driver := met(own, ".driver")
	found := ask(targets, strings.NewReplacer("ROUTER", router, "OWN", own, "OTHER", other, "PEER", peer, "SELF", address(), "DRIVER", driver))
	_, err = os.Stat("/var/run/secrets/kubernetes.io")
	found["credentials"] = fmt.Sprint(err == nil)
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "ROLLOUT_CLAIM") {
			found["credentials"] = variable
		}
	}
	// The other one asks too, and this session has to live meanwhile.
	mark(own+".done", "")
	met(own, ".done")
	finish(map[string]any{"found": found})
}

func ask(targets []target, fill *strings.Replacer) map[string]string {
	found := make(map[string]string)
	var all sync.WaitGroup
	var lock sync.Mutex
	for _, one := range targets {
		all.Go(func() {
			what := one.ask(fill)
			lock.Lock()
			defer lock.Unlock()
			found[one.Name] = what
		})
	}
	all.Wait()
	return found
}

func (one target) ask(fill *strings.Replacer) string {
	if one.URL == "" {
		connection, err := net.DialTimeout("tcp", fill.Replace(one.Address), patience)
		if err != nil {
			return "refused"
		}
		_ = connection.Close()
		return "reached"
	}
	request, err := http.NewRequest(one.Method, fill.Replace(one.URL), strings.NewReader("{}"))
	check(err)
	request.Header.Set("content-type", "application/json")
	request.Header.Set("authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	response, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return "refused"
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return fmt.Sprint(response.StatusCode)
}

// address is the pod's own.
func address() string {
	name, err := os.Hostname()
	check(err)
	found, err := net.LookupHost(name)
	check(err)
	return found[0]
}

func mark(name, text string) {
	draft := filepath.Join(os.Getenv("STARTS"), "draft-"+name)
	check(os.WriteFile(draft, []byte(text), 0o644))
	check(os.Rename(draft, filepath.Join(os.Getenv("STARTS"), name)))
}

// met waits for the mark of another session: its id and what the mark says.
func met(own, kind string) (string, string) {
	for end := time.Now().Add(together); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		marks, err := filepath.Glob(filepath.Join(os.Getenv("STARTS"), "*"+kind))
		check(err)
		for _, path := range marks {
			other := strings.TrimSuffix(filepath.Base(path), kind)
			if other == own || strings.HasPrefix(other, "draft-") {
				continue
			}
			text, err := os.ReadFile(path)
			check(err)
			return other, string(text)
		}
	}
	fail(fmt.Errorf("no other session left a mark %s", kind))
	return "", ""
}
