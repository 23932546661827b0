#!/usr/bin/perl
# watch.pl IP PORT: reads for 1.2 s, then closes (with data on its way); bytes per second
use strict; use IO::Socket::INET; use Time::HiRes 'time';
my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1]) or die "watch: $!";
my ($start, $n, $b) = (time, 0);
while (time - $start < 1.2) { my $k = sysread($s, $b, 262144); last unless $k; $n += $k; }
printf "rate=%.1f\n", $n / (time - $start);
