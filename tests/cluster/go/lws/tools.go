// Pins the version that is built.

//go:build tools

package tools

import _ "sigs.k8s.io/lws/cmd"
