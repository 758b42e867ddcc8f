-- c: AF_XDP towards the backend too, over the same sockets. Where the route to it leaves by another
-- interface, that one's queues are opened as well, and a line of the log says so.
local sockets = {}
for i=1,2 do
  xsk = newXsk({ifName="enp1s0", NIC_queue_id=i-1, frameNums=65536, xskMapPath="/sys/fs/bpf/dnsdist/xskmap"})
  table.insert(sockets, xsk)
  addLocal("192.0.2.1:53", {xskSocket=xsk, reusePort=true})
end
newServer("192.0.2.2:53", {xskSocket=sockets})
