package main

import (
	"context"
	"log"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	var all []*csi.PluginCapability
	for _, service := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
	} {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: service},
		}})
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: all}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrar tells kubelet where the driver is.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              name,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (registrar) NotifyRegistrationStatus(_ context.Context, told *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("kubelet: registered %v %s", told.PluginRegistered, told.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

// logged writes down calls and what became of them.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s %v: %v", info.FullMethod, request, err)
	} else {
		log.Printf("%s %v", info.FullMethod, request)
	}
	return answer, err
}
