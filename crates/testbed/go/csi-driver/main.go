// A CSI driver for tests: a volume is a folder, or a file when it is a block volume, and a snapshot is a
// copy of it. All that it knows is in its folder, so it can be killed at any moment, and looked into:
//
//	volumes/<handle>/data     what is in a volume: a folder or a file
//	snapshots/<handle>/data   what was in it
//	groups/<handle>           snapshots that were taken together
//	fail-snapshots            while it is there, new snapshots fail with its text
//	snapshot-ready-after      how long new snapshots take until they are ready, like 5s
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const name = "csi.bowline.test"

func main() {
	folder := flag.String("folder", "", "where volumes and snapshots are")
	endpoint := flag.String("endpoint", "", "the socket to listen on")
	node := flag.String("node", "", "the name of the node that this is")
	kubelet := flag.String("kubelet", "", "the socket where kubelet is to find this; none for no kubelet")
	flag.Parse()
	if err := run(*folder, *endpoint, *node, *kubelet); err != nil {
		log.Fatal(err)
	}
}

func run(folder, endpoint, node, kubelet string) error {
	store, err := open(folder)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, identity{})
	csi.RegisterControllerServer(server, controller{store: store})
	csi.RegisterGroupControllerServer(server, groups{store: store})
	csi.RegisterNodeServer(server, nodeServer{store: store, node: node})
	listener, err := listen(endpoint)
	if err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	if kubelet != "" {
		// Only now: kubelet calls as soon as it sees the socket.
		listener, err := listen(kubelet)
		if err != nil {
			return err
		}
		server := grpc.NewServer(grpc.UnaryInterceptor(logged))
		registration.RegisterRegistrationServer(server, registrar{endpoint: endpoint})
		go func() { ended <- server.Serve(listener) }()
	}
	return <-ended
}

// listen takes over the socket of one that was killed.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	return net.Listen("unix", path)
}
