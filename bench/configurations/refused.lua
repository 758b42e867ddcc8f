-- Every query is refused.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
