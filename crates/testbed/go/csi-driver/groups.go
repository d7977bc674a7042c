package main

import (
	"context"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// groups takes snapshots of several volumes at once.
type groups struct {
	csi.UnimplementedGroupControllerServer
	store *store
}

func (groups) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{
		Capabilities: []*csi.GroupControllerServiceCapability{{
			Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
				Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
			}},
		}},
	}, nil
}

func (g groups) CreateVolumeGroupSnapshot(_ context.Context, request *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if request.Name == "" || len(request.SourceVolumeIds) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a group needs a name and volumes")
	}
	volumes := slices.Sorted(slices.Values(request.SourceVolumeIds))
	g.store.Lock()
	defer g.store.Unlock()
	about := group{
		Handle:  handle("group", request.Name),
		Name:    request.Name,
		Volumes: volumes,
		Made:    time.Now(),
	}
	var old group
	if found, err := g.store.read("groups", about.Handle, &old); err != nil {
		return nil, err
	} else if found {
		if !slices.Equal(old.Volumes, volumes) {
			return nil, status.Errorf(codes.AlreadyExists, "group %s is of other volumes", request.Name)
		}
		about = old
	} else {
		for _, of := range volumes {
			made, err := g.store.snap(request.Name+"/"+of, of, about.Handle)
			if err != nil {
				return nil, err
			}
			about.Snapshots = append(about.Snapshots, made.Handle)
		}
		if err := g.store.add("groups", about.Handle, about, func(string) error { return nil }); err != nil {
			return nil, err
		}
	}
	message, err := g.message(about)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: message}, nil
}

// message is the group with its snapshots; it is ready when they all are.
func (g groups) message(about group) (*csi.VolumeGroupSnapshot, error) {
	ready := true
	var members []*csi.Snapshot
	for _, one := range about.Snapshots {
		var member snapshot
		found, err := g.store.read("snapshots", one, &member)
		if err != nil {
			return nil, err
		}
		if found {
			ready = ready && member.isReady()
			members = append(members, member.message())
		}
	}
	return &csi.VolumeGroupSnapshot{
		GroupSnapshotId: about.Handle,
		Snapshots:       members,
		CreationTime:    timestamppb.New(about.Made),
		ReadyToUse:      ready,
	}, nil
}

// removeEmpty forgets a group whose snapshots went one by one.
func (s *store) removeEmpty(group string) error {
	all, err := s.snapshots()
	if group == "" || err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(one snapshot) bool { return one.Group == group }) {
		return nil
	}
	return s.remove("groups", group)
}

func (g groups) DeleteVolumeGroupSnapshot(_ context.Context, request *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if request.GroupSnapshotId == "" {
		return nil, status.Error(codes.InvalidArgument, "which group?")
	}
	g.store.Lock()
	defer g.store.Unlock()
	var about group
	if found, err := g.store.read("groups", request.GroupSnapshotId, &about); err != nil {
		return nil, err
	} else if !found {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	for _, one := range about.Snapshots {
		if err := g.store.remove("snapshots", one); err != nil {
			return nil, err
		}
	}
	if err := g.store.remove("groups", about.Handle); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

func (g groups) GetVolumeGroupSnapshot(_ context.Context, request *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if request.GroupSnapshotId == "" {
		return nil, status.Error(codes.InvalidArgument, "which group?")
	}
	g.store.Lock()
	defer g.store.Unlock()
	var about group
	if found, err := g.store.read("groups", request.GroupSnapshotId, &about); err != nil {
		return nil, err
	} else if !found {
		return nil, status.Errorf(codes.NotFound, "no group %s", request.GroupSnapshotId)
	}
	message, err := g.message(about)
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: message}, nil
}
