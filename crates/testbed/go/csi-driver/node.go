package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodeServer puts volumes where pods find them. What is mounted is known to the kernel alone.
type nodeServer struct {
	csi.UnimplementedNodeServer
	store *store
	node  string
}

func (n nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.node}, nil
}

func (nodeServer) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (n nodeServer) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if request.VolumeId == "" || request.TargetPath == "" || request.VolumeCapability == nil {
		return nil, status.Error(codes.InvalidArgument, "a volume, a place and a kind are needed")
	}
	block, err := isBlock([]*csi.VolumeCapability{request.VolumeCapability})
	if err != nil {
		return nil, err
	}
	n.store.Lock()
	defer n.store.Unlock()
	var about volume
	if found, err := n.store.read("volumes", request.VolumeId, &about); err != nil {
		return nil, err
	} else if !found {
		return nil, status.Errorf(codes.NotFound, "no volume %s", request.VolumeId)
	}
	if about.Block != block {
		return nil, status.Errorf(codes.InvalidArgument, "volume %s is of the other kind", about.Handle)
	}
	if mounted, err := isMounted(request.TargetPath); err != nil || mounted {
		return &csi.NodePublishVolumeResponse{}, err
	}
	from := n.store.path("volumes", about.Handle, "data")
	switch {
	case block:
		err = publishBlock(from, request.TargetPath, request.Readonly)
	case about.Memory:
		err = publishMemory(request.TargetPath, about.Size)
	default:
		err = publishFolder(from, request.TargetPath, request.Readonly)
	}
	return &csi.NodePublishVolumeResponse{}, err
}

func publishFolder(from, target string, readOnly bool) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func publishMemory(target string, size int64) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return unix.Mount("tmpfs", target, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}

func publishBlock(from, target string, readOnly bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	file.Close()
	device, err := attach(from, readOnly)
	if err != nil {
		return err
	}
	return unix.Mount(device, target, "", unix.MS_BIND, "")
}

func (n nodeServer) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if request.VolumeId == "" || request.TargetPath == "" {
		return nil, status.Error(codes.InvalidArgument, "which volume, and where?")
	}
	n.store.Lock()
	defer n.store.Unlock()
	device := deviceAt(request.TargetPath)
	mounted, err := isMounted(request.TargetPath)
	if err != nil {
		return nil, err
	}
	if mounted {
		if err := unix.Unmount(request.TargetPath, 0); err != nil {
			return nil, err
		}
	}
	if device != "" {
		if err := detach(device); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(request.TargetPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// isMounted says whether something is mounted exactly there.
func isMounted(target string) (bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == filepath.Clean(target) {
			return true, nil
		}
	}
	return false, nil
}
