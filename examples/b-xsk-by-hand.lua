-- b: AF_XDP as dnsdist's operators write it: one socket for each queue of the interface.
for i=1,2 do
  xsk = newXsk({ifName="enp1s0", NIC_queue_id=i-1, frameNums=65536, xskMapPath="/sys/fs/bpf/dnsdist/xskmap"})
  addLocal("192.0.2.1:53", {xskSocket=xsk, reusePort=true})
end
addCapabilitiesToRetain("CAP_SYS_ADMIN")
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
