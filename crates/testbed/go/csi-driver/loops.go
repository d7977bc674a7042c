package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attach makes a block device of a file, one for each place where it is published.
func attach(path string, readOnly bool) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	if readOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	copy(config.Info.File_name[:unix.LO_NAME_SIZE-1], path)
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a free loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", number)
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		device.Close()
		if errors.Is(err, unix.EBUSY) {
			// Somebody else took it; the next one.
			continue
		}
		return path, err
	}
}

// deviceAt is the loop device that is mounted at a place, or nothing.
func deviceAt(target string) string {
	var stat unix.Stat_t
	if unix.Stat(target, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("/dev/loop%d", unix.Minor(stat.Rdev))
}

// detach lets a file go; the kernel does so once the last one has closed the device.
func detach(path string) error {
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	err = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}
