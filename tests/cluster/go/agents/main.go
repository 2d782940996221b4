// An agent that is not Python: one static program that speaks OpenAI's API, with the standard library only.
//
//	agents turns N     a conversation of N turns, each of which may ask the sandbox (SANDBOX_URL)
//	agents exits       one turn; then the exit code that the prompt names
//	agents eats        one turn; then all the memory there is
//	agents breaks      has its sandbox end itself, the first time that anybody does; then one turn
//	agents probe       asks for what an agent must not reach (targets in PROBE_TARGETS) and tells what answered
//	agents sandbox A   the other container, at the address A: turns text around; ends with 7 when it is asked for /break
//	agents reaches A   whether somebody listens at the address A
//
// What it found is in the session's result, which goes into the samples' metadata.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

var client = http.Client{Timeout: 2 * time.Minute}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: agents turns N|exits|eats|breaks|probe|sandbox A|reaches A"))
	}
	switch os.Args[1] {
	case "turns":
		turns()
	case "exits":
		exits()
	case "eats":
		eats()
	case "breaks":
		breaks()
	case "probe":
		probe()
	case "sandbox":
		sandbox()
	case "reaches":
		connection, err := net.Dial("tcp", os.Args[2])
		check(err)
		check(connection.Close())
	default:
		fail(fmt.Errorf("no command %q", os.Args[1]))
	}
}

func turns() {
	count, err := strconv.Atoi(os.Args[2])
	check(err)
	first := started()
	messages := prompt()
	for turn := 0; turn < count; turn++ {
		if turn > 0 {
			messages = append(messages, message{"user", turned(fmt.Sprintf("turn %d", turn))})
		}
		messages = append(messages, message{"assistant", say(messages)})
	}
	finish(map[string]any{"turns": count, "first": first, "last": messages[len(messages)-2].Content})
}

// exits ends with the number in the prompt's last word.
func exits() {
	first := started()
	messages := prompt()
	say(messages)
	words := strings.Fields(messages[len(messages)-1].Content)
	code, err := strconv.Atoi(words[len(words)-1])
	check(err)
	finish(map[string]any{"first": first, "slot": os.Getenv("ROLLOUT_SLOT"), "generation": os.Getenv("ROLLOUT_GENERATION"), "code": code})
	os.Exit(code)
}

// eats fills memory until somebody ends it.
func eats() {
	say(prompt())
	var all [][]byte
	for {
		block := make([]byte, 1<<20)
		for page := 0; page < len(block); page += 4096 {
			block[page] = 1
		}
		all = append(all, block)
		time.Sleep(time.Millisecond)
	}
}

// breaks needs its sandbox, and fails where that has ended.
func breaks() {
	mark, err := os.OpenFile(filepath.Join(os.Getenv("STARTS"), "broken"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		check(mark.Close())
		// Nobody answers: the sandbox is gone.
		_, err := client.Post(os.Getenv("SANDBOX_URL")+"/break", "text/plain", nil)
		check(err)
	} else if !errors.Is(err, os.ErrExist) {
		fail(err)
	}
	turned("whole")
	say(prompt())
	finish(map[string]any{"whole": true})
}

// started leaves a mark of the session in STARTS, and tells whether it is the only one.
func started() bool {
	folder := os.Getenv("STARTS")
	if folder == "" {
		return true
	}
	file, err := os.OpenFile(filepath.Join(folder, os.Getenv("ROLLOUT_SESSION_ID")), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return false
	}
	check(err)
	check(file.Close())
	return true
}

func prompt() []message {
	data, err := os.ReadFile(os.Getenv("ROLLOUT_PROMPT_FILE"))
	check(err)
	var messages []message
	check(json.Unmarshal(data, &messages))
	return messages
}

// say has the model answer.
func say(messages []message) string {
	body, err := json.Marshal(map[string]any{"model": "any", "messages": messages})
	check(err)
	status, answer := post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", os.Getenv("OPENAI_API_KEY"), body)
	if status != http.StatusOK {
		fail(fmt.Errorf("the model answered %d: %s", status, answer))
	}
	var completion struct {
		Choices []struct{ Message message }
	}
	check(json.Unmarshal(answer, &completion))
	return completion.Choices[0].Message.Content
}

func post(url, token string, body []byte) (int, []byte) {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	check(err)
	request.Header.Set("content-type", "application/json")
	if token != "" {
		request.Header.Set("authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	check(err)
	return response.StatusCode, answer
}

// turned is the text as the sandbox gives it back.
func turned(text string) string {
	sandbox := os.Getenv("SANDBOX_URL")
	if sandbox == "" {
		return text
	}
	status, answer := post(sandbox, "", []byte(text))
	if status != http.StatusOK {
		fail(fmt.Errorf("the sandbox answered %d", status))
	}
	return string(answer)
}

func sandbox() {
	served := 0
	turn := func(writer http.ResponseWriter, request *http.Request) {
		text, err := io.ReadAll(request.Body)
		check(err)
		runes := []rune(string(text))
		for left, right := 0, len(runes)-1; left < right; left, right = left+1, right-1 {
			runes[left], runes[right] = runes[right], runes[left]
		}
		served++
		_, _ = fmt.Fprintf(writer, "%d: %s", served, string(runes))
	}
	http.HandleFunc("/", turn)
	http.HandleFunc("/break", func(http.ResponseWriter, *http.Request) {
		fmt.Fprintln(os.Stderr, "the disk is gone")
		os.Exit(7)
	})
	check(http.ListenAndServe(os.Args[2], nil))
}

func finish(result map[string]any) {
	data, err := json.Marshal(result)
	check(err)
	check(os.WriteFile(os.Getenv("ROLLOUT_RESULT_FILE"), data, 0o644))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(70)
}
