// The programs of a Kubernetes control plane and node, and kubectl, in one binary: they share nearly all their packages, so that one link takes the
// place of six. The name it is called by, else its first argument, says which program runs.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	program := filepath.Base(os.Args[0])
	command := commandOf(program)
	if command == nil && program != "kubectl" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		program = os.Args[0]
		command = commandOf(program)
	}
	switch {
	case program == "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	case command == nil:
		fmt.Fprintln(os.Stderr, "no such program:", program)
		os.Exit(2)
	default:
		os.Exit(cli.Run(command))
	}
}

func commandOf(program string) *cobra.Command {
	switch program {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	}
	return nil
}
