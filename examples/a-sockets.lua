-- a: kernel sockets, eight listeners on one address; every query is refused.
for i=1,8 do addLocal("192.0.2.1:53", {reusePort=true}) end
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
