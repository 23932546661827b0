#!/usr/bin/perl
# gate.pl PORT EVIL: prefork, 3 workers accept from one listening socket; a line is checked by a regular expression
use strict; use IO::Socket::INET;
my ($port, $evil) = @ARGV;
my $l = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1) or die "gate: $!";
my $rule = $evil ? qr/^(.*?),(.*?),(.*?),(.*?)[;!]$/ : qr/^[^;!]*[;!]$/;
my @kids;
for my $i (1 .. 3) {
    my $pid = fork();
    if ($pid) { push @kids, $pid; next; }
    $SIG{TERM} = 'DEFAULT';
    while (my $s = $l->accept) {
        sysread($s, my $line, 512);
        chomp $line;
        syswrite($s, $line =~ $rule ? "yes\n" : "no\n");
        sysread($s, my $rest, 1);      # until the client has closed
        close $s;
    }
    exit;
}
$SIG{TERM} = $SIG{INT} = sub { kill 'TERM', @kids; exit };
$| = 1; print "ready\n";
1 while wait() > 0;
